package benchtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Machine is what figures depend on.
type Machine struct {
	CPU, Kernel, Go, FileSystem, Redis string
	Cores                              int
	Load                               string        // of the last minute, at the start
	Sync                               time.Duration // median fdatasync of a small append
}

// String is the machine in one sentence.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, data on %s (median fdatasync of 500 bytes %.2f ms), %s; load before it began %s.",
		m.CPU, m.Cores, m.Kernel, m.Go, m.FileSystem, m.Sync.Seconds()*1000, m.Redis, m.Load)
}

// ReadMachine looks around; dir is where data will live.
func ReadMachine(dir string) (Machine, error) {
	syncs, err := Syncs(dir, 200)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Go: runtime.Version(),
		FileSystem: fileSystem(dir), Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Sync: time.Duration(Median(syncs) * float64(time.Second)), Redis: "no redis-server",
	}
	m.Load, _, _ = strings.Cut(firstLine("/proc/loadavg"), " ")
	if said, err := exec.Command("redis-server", "--version").Output(); err == nil {
		for word := range strings.FieldsSeq(string(said)) {
			if version, ok := strings.CutPrefix(word, "v="); ok {
				m.Redis = "redis-server " + version
			}
		}
	}
	return m, nil
}

// Syncs appends 500 bytes and waits until they are on the disk, so many times,
// and returns the seconds each took. The file is given its blocks first, as a
// log that is used again has them.
func Syncs(dir string, count int) (seconds []float64, err error) {
	const frame = 500
	file, err := os.Create(filepath.Join(dir, "syncs"))
	if err != nil {
		return nil, fmt.Errorf("measure fdatasync: %w", err)
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	if _, err := file.Write(make([]byte, frame*count)); err != nil {
		return nil, fmt.Errorf("measure fdatasync: %w", err)
	}
	if err := file.Sync(); err != nil {
		return nil, fmt.Errorf("measure fdatasync: %w", err)
	}
	text := []byte(strings.Repeat("x", frame))
	for n := range count {
		began := time.Now()
		if _, err := file.WriteAt(text, int64(n*frame)); err != nil {
			return nil, fmt.Errorf("measure fdatasync: %w", err)
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return nil, fmt.Errorf("measure fdatasync: %w", err)
		}
		seconds = append(seconds, time.Since(began).Seconds())
	}
	return seconds, nil
}

func firstLine(path string) string {
	raw, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}

func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fileSystem is the type of the file system that dir is on: that of the longest
// mount point above it.
func fileSystem(dir string) string {
	raw, _ := os.ReadFile("/proc/self/mounts")
	kind, longest := "an unknown file system", -1
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < longest {
			continue
		}
		if at := strings.TrimSuffix(f[1], "/"); dir == at || strings.HasPrefix(dir, at+"/") {
			kind, longest = f[2], len(f[1])
		}
	}
	return kind
}
