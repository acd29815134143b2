package api

import (
	"strconv"
	"strings"
	"time"
)

// maxWait is the longest that a duplicate waits for the running write.
const maxWait = 30 * time.Second

// preferWait reads the preference wait of RFC 7240 section 4.3. Of several only
// the first counts (section 2), more than maxWait is maxWait, and one that
// cannot be read is no preference: the header never makes a request fail.
func preferWait(values []string) time.Duration {
	if len(values) == 0 {
		return 0
	}
	for _, preference := range splitQuoted(strings.Join(values, ","), ',') {
		preference = splitQuoted(preference, ';')[0]
		name, value, _ := strings.Cut(preference, "=")
		if strings.EqualFold(strings.Trim(name, " \t"), "wait") {
			return waitSeconds(strings.Trim(value, " \t"))
		}
	}
	return 0
}

func waitSeconds(value string) time.Duration {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.ParseInt(value, 10, 32)
	if err != nil { // only digits, so it is out of range: very long
		return maxWait
	}
	return min(time.Duration(seconds)*time.Second, maxWait)
}

// splitQuoted splits at a separator that stands outside quoted strings
// (RFC 9110 section 5.6.4). It returns at least one part.
func splitQuoted(s string, separator byte) []string {
	var parts []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == '"':
			quoted = !quoted
		case b == '\\' && quoted:
			i++
		case b == separator && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}
