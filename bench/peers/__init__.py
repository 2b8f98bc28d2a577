"""What runs in the peers' own virtual environment (`make bench-peers`): nothing here imports convertq."""
