"""The checks of `convertq doctor`: one function a check, which returns findings and, where it can, a remedy."""
