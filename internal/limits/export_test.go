package limits

// Remembered is how many places are remembered.
func Remembered(a *Addresses) int { return len(a.buckets) }
