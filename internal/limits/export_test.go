package limits

// Remembered is how many places are remembered.
func Remembered(a *Addresses) int { return len(a.buckets) }

// Lines is how many tenants are remembered.
func Lines(t *Turns) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}
