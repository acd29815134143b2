package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one run of redis-server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been reaped
}

// accepts is what a server says when it accepts connections and has its data.
const accepts = "eady to accept connections"

// run starts redis-server and returns once it has said the given words; a server that ends before that is an error with its last words.
func run(bin, conf, said string, env []string, args ...string) (*process, error) {
	cmd := exec.Command(bin, append([]string{conf}, args...)...)
	if env != nil {
		cmd.Env = asLaunched(env)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	cmd.SysProcAttr = dieWithParent()
	p := &process{cmd: cmd, done: make(chan struct{})}

	started := make(chan error, 1)
	ready := make(chan struct{})
	lastWords := make(chan string, 1)
	go func() {
		defer close(p.done)
		// The kernel's parent-death signal is bound to the thread that forked,
		// so that thread must live as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lastWords <- drain(out, said, ready)
		_ = cmd.Wait()
	}()

	if err := <-started; err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("start redis-server: it ended: %s", <-lastWords)
	case <-limit.C:
		_ = p.end(syscall.SIGKILL)
		return nil, fmt.Errorf("start redis-server: not ready within %s", startLimit)
	}
}

// drain reads the server's log to its end, closes ready at the line that says
// so, and returns the last lines.
func drain(out io.Reader, words string, ready chan<- struct{}) string {
	var last []string
	said := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !said && strings.Contains(lines.Text(), words) {
			said = true
			close(ready)
		}
		last = append(last, lines.Text())
		if len(last) > 5 {
			last = last[1:]
		}
	}
	return strings.Join(last, " / ")
}

// end sends the signal, wakes the process if it is paused, and waits until it
// is gone; a process that does not obey is killed and reported.
func (p *process) end(sig syscall.Signal) error {
	// An error here means that the process is gone already.
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("stop redis-server: it did not end by itself")
	}
}
