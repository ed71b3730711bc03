package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/memdir"
)

// TestPowerCuts cuts the power a few times under each file system, in each durability mode. DORMOUSE_CRASH_SEED gives the
// seed, DORMOUSE_POWER_CUTS the number of cuts for each.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("power cuts take half a minute")
	}
	if !inNamespace(t) {
		return
	}
	p := plan{loops: 3, lives: 3, seed: uint64(time.Now().UnixNano()), span: 150 * time.Millisecond, lines: 300, dir: memdir.Dir(t), log: t.Logf}
	if n, err := strconv.Atoi(os.Getenv("DORMOUSE_POWER_CUTS")); err == nil {
		p.loops = n
	}
	if n, err := strconv.ParseUint(os.Getenv("DORMOUSE_CRASH_SEED"), 10, 64); err == nil {
		p.seed = n
	}
	t.Logf("DORMOUSE_CRASH_SEED=%d", p.seed)
	for _, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			all, err := p.powerCuts(t.Context(), []string{fs.name})
			if errors.Is(err, errCannotCut) {
				t.Skipf("SKIPPED, no power cut was tried: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all.Rows {
				t.Logf("%s, %s: %d cuts, of which %d lost blocks; %d acknowledgements, %d restores compared",
					r.FileSystem, r.Durability, r.Cuts, r.Losing, r.Acks, r.RestoresCompared)
			}
			if all.bad() {
				t.Error(all.explain())
			}
		})
	}
}

// TestSyncedFilesOutliveThePower is the law that all else rests on, on the simulated disk itself: what was synced, with its
// name, is there after every cut.
func TestSyncedFilesOutliveThePower(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := memdir.Dir(t)
	boots, err := coverBootID(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer boots.Close()
	for _, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			if _, err := findFileSystems([]string{fs.name}); err != nil {
				t.Skipf("SKIPPED, no power cut was tried: %v", err)
			}
			m, err := newMachine(t.Context(), fs, dir, boots)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			synced := map[string]string{}
			for i, loss := range losses[:4] {
				boot, _ := os.ReadFile(bootIDPath)
				mnt, err := m.On(fs.mount[i%len(fs.mount)])
				if err != nil {
					t.Fatal(err)
				}
				if now, _ := os.ReadFile(bootIDPath); string(now) == string(boot) {
					t.Error("the system has the boot id that it had before the power cut")
				}
				for name, text := range synced {
					if got, err := os.ReadFile(filepath.Join(mnt, name)); err != nil || string(got) != text {
						t.Errorf("%s, loss before boot %d: %q, %v; synced was %q", name, i, got, err, text)
					}
				}
				for n := range 20 {
					name, text := fmt.Sprintf("%d-%d", i, n), strings.Repeat(fmt.Sprintln(i, n), 1+n*50)
					if err := os.WriteFile(filepath.Join(mnt, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
					if n%2 == 0 {
						syncAll(t, filepath.Join(mnt, name), mnt)
						synced[name] = text
					}
				}
				if err := m.disk.Fail(); err != nil {
					t.Fatal(err)
				}
				cut, err := m.disk.Settle(SettleOrder{Loss: loss, Seed: uint64(i)})
				if err != nil || cut.Flushes == 0 {
					t.Fatalf("%+v, %v", cut, err)
				}
				if err := m.Off(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func syncAll(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// inNamespace reports whether this process has mounts of its own. If not, it lets the test run in one that has.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) == t.Name() {
		return true
	}
	if _, err := findFileSystems(nil); err != nil {
		t.Skipf("SKIPPED, no power cut was tried: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), namespaceEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("SKIPPED, no power cut was tried: a mount namespace of its own: %v", err)
	}
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	} else if strings.Contains(string(out), "SKIPPED") {
		t.Skip("SKIPPED for some file system, see above")
	}
	return false
}
