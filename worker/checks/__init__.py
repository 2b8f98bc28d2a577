"""What `convertq doctor` looks at: one function a check; it returns what it found and, where it can, how to mend it."""
