"""From scheduled tile statements to what one lane does; `lower_lanes` is the pass."""
