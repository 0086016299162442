"""What a peer keeps of topics, and how it slows senders down or cuts leases when that is too much."""
