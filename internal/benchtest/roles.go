package benchtest

// PlayRole makes this process be the one that the environment asks for, until its
// standard input ends. It returns false where none is asked for.
func PlayRole() bool { return false }
