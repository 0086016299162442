"""Management scopes: their hierarchy, managers, channels, policies and routing records (docs/scopes.md)."""
