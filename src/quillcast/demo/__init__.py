"""The demo: a network of processes, real events, kills, and the proof that nothing was lost (`quillcast demo`)."""
