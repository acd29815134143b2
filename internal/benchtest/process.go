package benchtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// process is this binary in one of its roles.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	addr string // where it serves; "" for the load generator
}

// light is the environment of what shares the processors with those it measures:
// one thread of Go each, so that they do not spin for work on both.
const light = "GOMAXPROCS=1"

// spawn starts a role. first is the first line that it is told, "" for none.
func spawn(t testing.TB, role, first string, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.close)
	if first != "" {
		_, err = io.WriteString(in, first+"\n")
	}
	if role != roleLoad && err == nil {
		p.addr, err = p.out.ReadString('\n')
		p.addr = strings.TrimSpace(p.addr)
	}
	if err != nil {
		t.Fatalf("start %s: %v", role, err)
	}
	return p
}

// close ends the process; more than once is no error.
func (p *process) close() {
	_ = p.in.Close() // which ends it
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// generate has the load generator carry out a plan.
func (p *process) generate(ctx context.Context, plan Plan) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	if err := json.NewEncoder(p.in).Encode(plan); err != nil {
		return Outcome{}, fmt.Errorf("ask load generator: %w", err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return Outcome{}, fmt.Errorf("hear load generator: %w", err)
	}
	var out Outcome
	if err := json.Unmarshal(line, &out); err != nil {
		return Outcome{}, fmt.Errorf("hear load generator: %w", err)
	}
	if out.Error != "" {
		return out, errors.New(out.Error)
	}
	return out, nil
}
