package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// askedContext runs something when it is first asked whether it is over.
type askedContext struct {
	context.Context
	asked func()
}

func (c *askedContext) Err() error {
	if f := c.asked; f != nil {
		c.asked = nil
		f()
	}
	return nil
}

// A Bloom filter that is built anew while Verify compares the old one with the index does not know what was deleted meanwhile.
// That is no damage.
func TestVerifyWhileTheBloomFilterIsBuiltAnew(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 16*20)}
	put(t, m, p)
	eventually(t, "the Bloom filter is there", func() bool { return s.eng.bloom.Load() != nil })
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	v := &verifier{e: s.eng}
	if err := v.bloom(&askedContext{ctx, func() {
		_, err := m.Delete(ctx, p.Prefix(16))
		if err = errors.Join(err, s.eng.rebuildBloom(ctx)); err != nil {
			t.Fatal(err)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if len(v.out.Damage) > 0 {
		t.Fatalf("%d false reports, the first: %v", len(v.out.Damage), v.out.Damage[0])
	}
}

// Files that a checkpoint is about to rename are no strange files.
func TestVerifyDuringCheckpoints(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			p := kv.Prompt{Tokens: tokens(i%7, 16*12)}
			_, err := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, len(p.Tokens)), PutOptions{})
			if err == nil {
				err = errors.Join(s.Checkpoint(ctx), s.eng.compactIndex(ctx))
			}
			if err == nil && i%3 == 0 {
				_, err = m.Delete(ctx, p.Prefix(16))
			}
			if err != nil {
				stopped <- err
				<-stop
				return
			}
		}
	}()
	for range 25 {
		report, err := s.Verify(ctx, VerifyOptions{})
		if err != nil || len(report.Damage) > 0 {
			t.Error(err, report.Damage)
			break
		}
		for _, n := range report.Notes {
			if strings.Contains(n, "not a file of the store") {
				t.Errorf("noted: %s", n)
			}
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// An index that was damaged and is rebuilt is no damage of the open store any more, and is looked into.
func TestVerifyAfterTheIndexWasRebuilt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	put(t, model(t, s, plain()), kv.Prompt{Tokens: tokens(1, 64)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, indexName)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[:8192], make([]byte, 8192))
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if report, err := Verify(ctx, dir, VerifyOptions{}); err != nil || len(report.Damage) == 0 {
		t.Fatal("a closed store's damaged index is not reported", err)
	}
	s = open(t, dir, options())
	eventually(t, "the Bloom filter is built", func() bool { return s.eng.bloom.Load() != nil })
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	report, err := s.Verify(ctx, VerifyOptions{})
	if err != nil || len(report.Damage) > 0 || len(report.Notes) > 0 {
		t.Error(err, report.Damage, report.Notes)
	}
}
