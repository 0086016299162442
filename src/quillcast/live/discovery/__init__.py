"""How peers and commands of one machine find each other and talk to each other."""
