"""What is ordered: the next step towards the plan, checked again, and what it changes. Pure."""
