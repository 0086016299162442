"""What scopes need of the machine: policies and filters of other packages, and the processes that run policies."""
