"""The reference gateway: a stand-in converter for trying convertq and for testing it."""
