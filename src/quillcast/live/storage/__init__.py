"""What a peer keeps on disk: its data folder, its journal, protocol state."""
