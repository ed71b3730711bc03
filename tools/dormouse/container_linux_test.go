package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// enter makes what a container with read-only files is, of this machine's own files: R is its root, V the image of its volume, which is at /srv. What
// the test adds to it runs before the root is changed.
const enter = `set -e
mount --bind / "$R"; mount -o remount,bind,ro "$R"
mount -t proc proc "$R/proc"
mount -t tmpfs -o mode=755 dev "$R/dev"
for d in null zero random urandom; do : > "$R/dev/$d"; mount --bind /dev/$d "$R/dev/$d"; done
mkdir "$R/dev/shm"
mount -t tmpfs opt "$R/opt"; cp "$SELF" "$R/opt/dormouse"; cp "$MODEL" "$R/opt/model.gguf"; chmod 644 "$R/opt/model.gguf"; mount -o remount,ro "$R/opt"
mount -o loop "$V" "$R/srv"
%s
mount -o remount,ro "$R/dev"
exec chroot "$R" "$@"`

// container is dormouse serve in one.
type container struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log *output
}

// volume is an image of a small volume.
func volume(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: containers are untested: mounting needs root")
	}
	image := filepath.Join(t.TempDir(), "volume")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	f.Truncate(64 << 20)
	f.Close()
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: containers are untested: %v %s", err, out)
	}
	return image
}

// startUnready starts dormouse serve, behind the given words, in a container with such a volume.
func startUnready(t *testing.T, image, setup string, before []string, flags ...string) *container {
	t.Helper()
	server := realServer(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	line := append([]string{"--mount", "--propagation", "private", "sh", "-c", fmt.Sprintf(enter, setup), "sh"}, before...)
	line = append(append(line, "/opt/dormouse", "serve"), flags...)
	line = append(line, "--", server, "-m", "/opt/model.gguf", "-t", "1", "-tb", "1", "-np", "1", "-c", "512", "--port", port)
	c := &container{t: t, cmd: exec.Command("unshare", line...), url: "http://127.0.0.1:" + port, log: &output{}}
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), asCommand + "=1", "R=" + t.TempDir(), "V=" + image, "SELF=" + self, "MODEL=" + model}
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		t.Skip("SKIPPED: containers are untested: ", err)
	}
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			t.Log(c.log)
		}
	})
	return c
}

// startContainer starts it, and waits until its model is known, or refused.
func startContainer(t *testing.T, image, setup string, before []string, flags ...string) *container {
	t.Helper()
	c := startUnready(t, image, setup, before, flags...)
	c.eventually(func() bool {
		s, err := c.status()
		return err == nil && len(s.Models) > 0 && (s.Models[0].Fingerprint != "" || s.Models[0].Refused != "" && !strings.Contains(s.Models[0].Refused, "opened"))
	})
	return c
}

// eventually waits until something is so, as long as there is a chance.
func (c *container) eventually(is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
		if log := c.log.String(); strings.Contains(log, "unshare failed") || strings.Contains(log, "mount: ") || strings.Contains(log, "chroot: ") {
			c.t.Skip("SKIPPED: containers are untested: ", log)
		}
	}
	c.t.Fatal("it never came to that")
}

// status is what dormouse status says in the container.
func (c *container) status() (s llamaserver.Status, err error) {
	proc := fmt.Sprint("/proc/", c.cmd.Process.Pid)
	cmd := exec.Command("nsenter", "--mount="+proc+"/ns/mnt", "--root="+proc+"/root", "/opt/dormouse", "status", "--json", "--store", "/srv")
	cmd.Env = []string{asCommand + "=1"}
	out, err := cmd.Output()
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// ask has a prompt completed, and gives what the front says of it.
func (c *container) ask(prompt string) string {
	c.t.Helper()
	b, err := json.Marshal(map[string]any{"prompt": prompt, "n_predict": 4, "temperature": 0})
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.Post(c.url+"/completion", "application/json", bytes.NewReader(b))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s %s %v", resp.Status, body, err)
	}
	return resp.Header.Get(llamaserver.Header)
}

func (c *container) stop() {
	if c.cmd.ProcessState != nil {
		return
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	ended := time.AfterFunc(30*time.Second, func() { c.cmd.Process.Kill() })
	c.cmd.Wait()
	ended.Stop()
}

// In a container whose files are read-only, without a home, a front keeps prompts at the root of a volume, and slot files in memory wherever some can be written to.
func TestReadOnlyContainer(t *testing.T) {
	prompt := "Once upon a time " + strings.Repeat("the little dog ran to the park and saw a tree. ", 8)
	nobody := []string{"/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}
	const own = `chown 65534 "$R/srv"; chmod 700 "$R/srv"; `
	for name, c := range map[string]struct {
		setup  string
		before []string
		slots  string
	}{
		"shm":                {`mount -t tmpfs shm "$R/dev/shm"`, nil, "links to it in /dev/shm/"},
		"shm without room":   {`mount -t tmpfs -o size=4k,noexec,nosuid,nodev shm "$R/dev/shm"; echo full > "$R/dev/shm/full"`, nil, "links to it in /dev/shm/"},
		"memory elsewhere":   {`mount -t tmpfs m "$R/mnt"`, nil, "links to it in /mnt/"},
		"shm is read-only":   {`mount -t tmpfs -o ro shm "$R/dev/shm"; mount -t tmpfs m "$R/tmp"`, nil, "links to it in /tmp/"},
		"no memory":          {``, nil, "links to it in /srv/dormouse-slots-"},
		"links not followed": {`mount -t tmpfs -o nosymfollow shm "$R/dev/shm"`, nil, "files in /dev/shm/"},
		"as documented":      {`mount -t tmpfs -o mode=1777 run "$R/run"; chown 1000 "$R/srv"; chmod 700 "$R/srv"`, []string{"/usr/bin/setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"}, "links to it in /run/"},
		"nobody, shm":        {own + `mount -t tmpfs -o mode=1777 shm "$R/dev/shm"`, nobody, "links to it in /dev/shm/"},
		"nobody, no memory":  {own, nobody, "links to it in /srv/dormouse-slots-"},
	} {
		t.Run(name, func(t *testing.T) {
			image := volume(t)
			for i := range 2 {
				f := startContainer(t, image, c.setup, c.before, "--store", "/srv")
				s, err := f.status()
				if err != nil || s.Store != "open" || !strings.Contains(s.SlotFiles, c.slots) || s.Models[0].Refused != "" {
					t.Fatalf("%+v %v, expected slot files to be %q", s, err, c.slots)
				}
				if said := f.ask(prompt); i == 1 && !strings.HasPrefix(said, "hit") {
					t.Errorf("after a restart: %s", said)
				}
				f.stop()
			}
		})
	}
}

// Where nothing can be written to, the front answers all the same, and says what it cannot do. It does so, too, where the volume is read-only.
func TestContainerWithoutAPlace(t *testing.T) {
	for name, setup := range map[string]string{
		"nothing":            `umount "$R/srv"`,
		"a read-only volume": `mount -o remount,ro "$R/srv"; mount -t tmpfs shm "$R/dev/shm"`,
	} {
		t.Run(name, func(t *testing.T) {
			f := startUnready(t, volume(t), setup, nil, "--store", "/srv")
			f.eventually(func() bool {
				resp, err := http.Get(f.url + "/health")
				if err != nil {
					return false
				}
				resp.Body.Close()
				return resp.StatusCode == http.StatusOK && strings.Contains(f.log.String(), "answers for")
			})
			said := f.ask("Once upon a time " + strings.Repeat("the little dog ran. ", 20))
			if !strings.HasPrefix(said, "pass") {
				t.Error(said)
			}
			if log := f.log.String(); !strings.Contains(log, "nothing is kept") || !strings.Contains(log, "read-only file system") {
				t.Error("it is not said that nothing is kept, and why")
			}
		})
	}
}

// Who wants more left free than a volume has is told at once, in the log and by status, that nothing is stored; once, and not at each turn.
func TestNotStoring(t *testing.T) {
	image := volume(t)
	prompt := "Once upon a time " + strings.Repeat("the little dog ran to the park and saw a tree. ", 8)
	f := startContainer(t, image, `mount -t tmpfs shm "$R/dev/shm"`, nil, "--store", "/srv", "--min-free", "256MiB")
	for range 3 {
		f.ask(prompt)
		f.ask("Another day " + prompt)
	}
	s, err := f.status()
	if err != nil || s.Store != "open" || !strings.HasPrefix(s.NotStoring, "not storing: ") || !strings.Contains(s.NotStoring, "free, 256 MiB are kept free") {
		t.Errorf("%+v %v", s, err)
	}
	f.stop()
	if n := strings.Count(f.log.String(), "not storing"); n < 1 || n > 2 {
		t.Errorf("it is said %d times", n)
	}
	f = startContainer(t, image, `mount -t tmpfs shm "$R/dev/shm"`, nil, "--store", "/srv", "--min-free", "none")
	if s, err := f.status(); err != nil || s.NotStoring != "" {
		t.Errorf("%+v %v", s, err)
	}
}
