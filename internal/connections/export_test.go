package connections

// Limit makes the memory a small one.
func (r *Recent) Limit(most int) { r.most = most }

// Len is how many connections are remembered.
func (r *Recent) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}
