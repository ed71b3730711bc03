package llamaserver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// needRoot skips what cannot be made without root.
func needRoot(t *testing.T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: servers in namespaces and as other users are untested: that needs root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("SKIPPED: servers in namespaces and as other users are untested: ", err)
		}
	}
}

// startBehind starts a server whose command line begins with something else. The model is where every user can read it.
func startBehind(t *testing.T, o llamaserver.Options, before ...string) *rig.Rig {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(os.TempDir(), 0o755) // a folder of this test process alone
	b, err := os.ReadFile(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(dir, "stories.gguf")
	if err := os.WriteFile(model, b, 0o644); err != nil {
		t.Fatal(err)
	}
	a, err := llamaserver.ParseArguments(append(before, rig.Program(t), "-t", "1", "-tb", "1", "-m", model, "-np", "1", "-c", "1024"), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "store")
	}
	o.SaveAfter = 20 * time.Millisecond
	r := rig.StartWith(t, o, a)
	r.Settled()
	return r
}

// A server in a PID namespace of its own, or of another user, cannot follow links to memory of the front. It gets files: they are kept like links, by a front that
// begins anew, too, and are nobody else's.
func TestSandboxedServer(t *testing.T) {
	needRoot(t, "unshare", "setpriv")
	user := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}
	namespace := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	for name, before := range map[string][]string{
		"user namespace": {"unshare", "--user", "--map-root-user"},
		"PID namespace":  namespace, "another user": user, "both": append(append([]string{}, namespace...), user...),
	} {
		t.Run(name, func(t *testing.T) {
			o := llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store")}
			for range 2 {
				r := startBehind(t, o, before...)
				keeps(r)
				if got := r.Front.Folder().String(); !strings.Contains(got, "files in") {
					t.Errorf("slot files are %s", got)
				}
				info, err := os.Stat(r.Front.SlotFolder())
				if err != nil || info.Mode().Perm()&0o066 != 0 {
					t.Errorf("others can list the folder of slot files: %v %v", info.Mode(), err)
				}
				f, err := r.Front.Folder().Create(5)
				if err != nil {
					t.Fatal(err)
				}
				if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("others can read slot files: %v %v", info.Mode(), err)
				}
				f.Close()
				r.Stop()
				if _, err := os.Stat(r.Front.SlotFolder()); err == nil {
					t.Error("the folder of slot files is left")
				}
			}
		})
	}
}

// A server that reaches neither links nor files is told of in words, and its requests are answered.
func TestServerThatReachesNothing(t *testing.T) {
	needRoot(t, "unshare", "mount")
	r := startBehind(t, llamaserver.Options{}, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
		// the folder is there, as it must be for the server to start, and is another one
		`for last; do :; done; mount -t tmpfs none /dev/shm && mkdir -p "$last" && exec "$@"`, "sh")
	err := r.Front.Ready()
	if err == nil {
		t.Fatal("it is kept")
	}
	for _, word := range []string{"slots_not_saved", "PID namespace", "other mounts", r.Front.SlotFolder(), "--slot-dir"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
	if got := r.Ask("/completion", rig.Story("Once", 12)); got.Status != 200 || !strings.HasPrefix(got.Header, "pass; reason=slots_not_saved") {
		t.Errorf("%d %s", got.Status, got.Header)
	}
}

// A server whose sandbox hides the folder does not start with it. It is started without, and what is missing is said.
func TestServerThatSeesNoFolder(t *testing.T) {
	needRoot(t, "unshare", "mount")
	r := startBehind(t, llamaserver.Options{}, "unshare", "--mount", "sh", "-c", `mount -t tmpfs none /dev/shm && exec "$@"`, "sh")
	err := r.Front.Ready()
	if err == nil {
		t.Fatal("it is kept")
	}
	for _, word := range []string{"slots_not_saved", r.Front.SlotFolder(), "sandbox", "--slot-dir"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
	if got := r.Ask("/completion", rig.Story("Once", 12)); got.Status != 200 || !strings.HasPrefix(got.Header, "pass; reason=slots_not_saved") {
		t.Errorf("%d %s", got.Status, got.Header)
	}
	select {
	case <-r.Server.Ended():
		t.Error("it counts as a server that was started wrongly")
	default:
	}
}

// keeps looks whether a prompt is stored, and restored after the server was killed.
func keeps(r *rig.Rig) {
	r.T.Helper()
	if err := r.Front.Ready(); err != nil {
		r.T.Fatal(err)
	}
	ask := rig.Story("Once upon a time", 12)
	first := r.Ask("/completion", ask)
	r.Saved()
	r.Ask("/completion", rig.Story("Another day", 12))
	r.Saved()
	again := r.Ask("/completion", ask)
	if !strings.HasPrefix(again.Header, "hit") || again.Text != first.Text {
		r.T.Errorf("%q %q, expected a hit and %q", again.Header, again.Text, first.Text)
	}
	r.Saved()
}
