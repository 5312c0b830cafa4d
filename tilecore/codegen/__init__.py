"""From the lowest level of the IR to text."""
