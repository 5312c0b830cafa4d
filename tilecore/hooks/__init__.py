"""How backends plug in: specifications, records, discovery."""
