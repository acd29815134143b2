package archivetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"holdfast.dev/gateway/internal/archive"
)

// Memory is a Storage in memory whose calls can be made to fail or to lie.
type Memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	// Fault, if set, is asked before each call: an error is returned instead of
	// doing it.
	fault func(op, name string) error
	// Lie, if set, changes what a Put really keeps; nil keeps nothing.
	lie func(name string, data []byte) []byte
}

// NewMemory returns an empty storage.
func NewMemory() *Memory { return &Memory{objects: map[string][]byte{}} }

// Fail makes calls fail with what f returns; nil ends it.
func (m *Memory) Fail(f func(op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Lie makes puts report success and keep something else; nil ends it.
func (m *Memory) Lie(f func(name string, data []byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lie = f
}

// Names lists all objects.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.objects))
}

// Damage replaces an object by f of it; nil removes it.
func (m *Memory) Damage(name string, f func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if data := f(bytes.Clone(m.objects[name])); data != nil {
		m.objects[name] = data
	} else {
		delete(m.objects, name)
	}
}

func (m *Memory) enter(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(op, name)
}

// Put keeps an object.
func (m *Memory) Put(ctx context.Context, name string, data []byte) error {
	if err := m.enter(ctx, "put", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data = bytes.Clone(data)
	if m.lie != nil {
		if data = m.lie(name, data); data == nil {
			return nil
		}
	}
	m.objects[name] = data
	return nil
}

// Get returns an object.
func (m *Memory) Get(ctx context.Context, name string) ([]byte, error) {
	if err := m.enter(ctx, "get", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[name]
	if !ok {
		return nil, archive.ErrNoObject
	}
	return bytes.Clone(data), nil
}

// Delete removes an object.
func (m *Memory) Delete(ctx context.Context, name string) error {
	if err := m.enter(ctx, "delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

// List lists names in their order.
func (m *Memory) List(ctx context.Context, prefix string, limit int) ([]string, error) {
	if err := m.enter(ctx, "list", prefix); err != nil {
		return nil, err
	}
	var out []string
	for _, name := range m.Names() {
		if strings.HasPrefix(name, prefix) && len(out) < limit {
			out = append(out, name)
		}
	}
	return out, nil
}
