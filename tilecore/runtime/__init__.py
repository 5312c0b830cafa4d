"""What happens after compilation: the disk cache, argument checking, and launching."""
