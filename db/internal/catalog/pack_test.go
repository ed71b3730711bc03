package catalog_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// layered is a model of so many tensors, K and V in turns.
func layered(name string, tensors int) kv.Descriptor {
	d := crashtest.Plain()
	d.Name, d.Weights, d.Tensors = name, kv.HashOf(name), nil
	for i := range tensors {
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: i / 2, Role: kv.RoleK + kv.Role(i%2), DType: kv.F16, Width: 256})
	}
	return d
}

// normal is d in its normal form.
func normal(t *testing.T, d kv.Descriptor) *kv.Descriptor {
	t.Helper()
	d = storetest.Must(d.Normal())(t)
	return &d
}

// A descriptor that cannot be unpacked, or is another model's, costs that model alone, when it is asked for. Who retires it can
// register it again.
func TestDescriptorThatCannotBeRead(t *testing.T) {
	d, p := layered("bad", 4), kv.Tokens(crashtest.Tokens(1, 48)...)
	for name, spoil := range map[string]func(op *oplog.Model){
		"rubbish":             func(op *oplog.Model) { op.Packed = []byte("rubbish") },
		"nothing":             func(op *oplog.Model) { op.Packed = []byte{} },
		"cut":                 func(op *oplog.Model) { op.Packed = op.Packed[:len(op.Packed)-1] },
		"another fingerprint": func(op *oplog.Model) { op.Packed = oplog.NewModel(normal(t, layered("x", 6)), 0).Packed },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := storetest.Open(t, dir, storetest.Options())
			storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
			op := oplog.NewModel(normal(t, d), storetest.Log(t, s).LastLSN)
			fp := op.Fingerprint
			spoil(&op)
			storetest.Crash(s)
			storetest.AppendToLog(t, dir, op.Kind(), oplog.Encode(op))
			s = storetest.Open(t, dir, storetest.Options())
			for range 2 { // from a frame, and from the head of the log
				storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 48)
				for what, do := range map[string]func() error{
					"Register": func() error { _, err := s.Register(t.Context(), d); return err },
					"Model":    func() error { _, err := s.Model(fp); return err },
					"Models": func() (bad error) { // all are listed, and that one says it
						all, err := db.Collect(s.Models())
						for _, x := range all {
							switch {
							case x.Err == nil && x.Descriptor.Name != crashtest.Plain().Name, x.Err != nil && (x.Fingerprint != fp || x.Descriptor.Name != "bad"):
								t.Errorf("%+v", x)
							case x.Err != nil:
								bad = x.Err
							}
						}
						if len(all) != 2 || err != nil {
							t.Errorf("%d models are listed, %v", len(all), err)
						}
						return bad
					},
					"Explain": func() error {
						x, err := storetest.Model(t, s, crashtest.Plain()).Explain(t.Context(), p, db.MatchOptions{})
						if err != nil || x.Tokens != 48 || len(x.Elsewhere) != 1 || x.Elsewhere[0].Fingerprint != fp || x.Elsewhere[0].Name != "bad" {
							t.Errorf("%+v, %v", x, err)
							return nil
						}
						return x.Elsewhere[0].Err
					},
				} {
					var bad *db.CorruptError
					if err := do(); !errors.As(err, &bad) || filepath.Base(filepath.Dir(bad.File)) != storetest.LogDir || bad.Offset == 0 || !strings.Contains(err.Error(), fp.String()) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if r, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{}); err != nil || len(r.Damage) != 1 {
					t.Errorf("verify: %v, %v", r.Damage, err)
				}
				s = storetest.Reopened(t, s, storetest.Options())
			}
			storetest.OK(t, s.Close())
			to := filepath.Join(t.TempDir(), "repaired")
			if r, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{}); err != nil || r.Models != 1 {
				t.Errorf("repair: %d models, %v", r.Models, err)
			}
			s = storetest.Open(t, to, storetest.Options())
			storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 48)
			storetest.Model(t, s, d)
			s = storetest.Open(t, dir, storetest.Options())
			storetest.OK(t, s.Retire(t.Context(), fp))
			m := storetest.Model(t, s, d)
			storetest.Put(t, m, p)
			storetest.Expect(t, m, p, 48)
		})
	}
}
