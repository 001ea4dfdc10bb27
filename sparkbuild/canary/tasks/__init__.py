"""What a canary knows: tasks that make samples, without end and from a seed."""
