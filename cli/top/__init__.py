"""`convertq top`: the live terminal dashboard."""
