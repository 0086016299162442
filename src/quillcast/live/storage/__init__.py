"""What a peer keeps on disk: its data folder, its journal, and protocol state."""
