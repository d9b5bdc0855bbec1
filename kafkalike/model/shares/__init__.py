"""Share groups: the state of a share partition, and the rules that change it; pure Python."""
