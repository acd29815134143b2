package benchtest

import (
	"os"
	"strconv"
	"strings"
)

// ticks is the unit of CPU time in /proc/PID/stat, in every Linux a Go program
// meets (USER_HZ).
const ticks = 100

// cpu returns the seconds of CPU that processes have used, as user and in the
// kernel (proc_pid_stat(5): fields 14 and 15).
func cpu(pids []int) []float64 {
	used := make([]float64, len(pids))
	for i, pid := range pids {
		raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		// The program's name may hold anything, and ends at the last parenthesis.
		_, rest, _ := strings.Cut(string(raw[strings.LastIndex(string(raw), ")")+1:]), " ")
		f := strings.Fields(rest)
		if len(f) < 13 {
			continue
		}
		user, _ := strconv.ParseFloat(f[11], 64)
		kernel, _ := strconv.ParseFloat(f[12], 64)
		used[i] = (user + kernel) / ticks
	}
	return used
}
