package main

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// The collector of the gateway's garbage is the only part of its work that more
// memory makes cheaper. What lives is small (some tens of megabytes) and each write
// leaves tens of kilobytes behind, so with Go's default the collector runs many
// times a second. It may leave four times as much as lives, and half of the
// machine's or container's memory at most; the rest is for the embedded store,
// which has its own outside of Go's heap, and for the page cache.
const (
	collectorPercent = 400
	// leastLimit is below what the gateway needs: a smaller limit would only keep
	// the collector busy.
	leastLimit = 192 << 20
)

// tuneCollector sets the collector, unless the operator has by Go's own variables.
func tuneCollector() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(collectorPercent)
	if limit := memoryLimit(os.DirFS("/")); limit < math.MaxInt64 {
		debug.SetMemoryLimit(max(limit/2, leastLimit))
	}
}

// memoryLimit is how much memory this process can have: the least of the machine's
// and of what its control group and those around it allow
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, memory.max; memory.limit_in_bytes
// in version 1). MaxInt64 where nothing can be read.
func memoryLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		limit = min(limit, totalMemory(text))
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch mount := "sys/fs/cgroup"; {
		case parts[0] == "0" && parts[1] == "":
			limit = min(limit, groupLimit(root, mount, parts[2], "memory.max"))
		case parts[1] == "memory":
			limit = min(limit, groupLimit(root, mount+"/memory", parts[2], "memory.limit_in_bytes"))
		}
	}
	return limit
}

// groupLimit is the least that the group at a path and those above it allow. In a
// container the path may be one that only the host sees; then the mount itself is
// the container's group.
func groupLimit(root fs.FS, mount, group, file string) int64 {
	limit := int64(math.MaxInt64)
	for at := path.Join("/", group); ; at = path.Dir(at) {
		if text, err := fs.ReadFile(root, path.Join(mount, at, file)); err == nil {
			// "max" is no number, and means no limit.
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
		if at == "/" {
			return limit
		}
	}
}

func totalMemory(meminfo []byte) int64 {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		value, found := strings.CutPrefix(lines.Text(), "MemTotal:")
		if !found {
			continue
		}
		if kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64); err == nil && kb > 0 && kb < math.MaxInt64>>10 {
			return kb << 10
		}
	}
	return math.MaxInt64
}
