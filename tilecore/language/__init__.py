"""What a kernel author imports as T: tracing Python into tile programs."""
