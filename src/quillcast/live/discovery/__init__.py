"""How peers and commands on one machine find each other and communicate."""
