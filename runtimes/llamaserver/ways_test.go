package llamaserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A server that somebody else runs is helped, too; and what others do to its slots meanwhile does no harm.
func TestAttached(t *testing.T) {
	slots := t.TempDir()
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	base := rig.Plain(t, "-m", model, "-c", "2048", "-np", "2", "--slot-save-path", slots)
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig.Rig{T: t, Log: &rig.Log{}}
	logger := slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := filepath.Join(t.TempDir(), "store")
	if r.Front, err = llamaserver.New(u, &llamaserver.Arguments{}, llamaserver.Options{Dir: dir, Attach: base, SlotDir: slots, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.Front)
	r.URL = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := r.Front.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(slots); len(left) > 0 {
			t.Errorf("the slot folder has %d files left, %s", len(left), left[0].Name())
		}
		if t.Failed() {
			t.Log(r.Log)
		}
	})
	r.Front.Prepare()
	r.Settled()
	first := r.Ask("/completion", rig.Story("Attached", 8))
	if first.Status != 200 || !strings.HasPrefix(first.Header, "miss") {
		t.Fatalf("the first answer is %+v", first)
	}
	r.Saved()
	for i := range 4 { // others use all slots
		if got := rig.Ask(t, context.Background(), base, "/completion", rig.Story(strings.Repeat("Others ", i+1), 6)); got.Status != 200 {
			t.Fatalf("without the front: %+v", got)
		}
	}
	again := r.Ask("/completion", rig.Story("Attached", 8))
	if !strings.HasPrefix(again.Header, "hit") || again.Text != first.Text || again.A.Cached == 0 {
		t.Errorf("the answer is %q (%s), %d tokens reused; expected %q", again.Text, again.Header, again.A.Cached, first.Text)
	}
}

// The server's own certificate and key are used for what the front asks it.
func TestServerWithTLSAndKey(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	selfSigned(t, cert, key)
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "--ssl-cert-file", cert, "--ssl-key-file", key, "--api-key", "one,two")
	if got := r.Ask("/completion", rig.Story("Nobody", 4)); got.Status != http.StatusUnauthorized {
		t.Errorf("without a key: %+v", got)
	}
	with := func() rig.Reply {
		req, err := http.NewRequest(http.MethodPost, r.URL+"/completion", strings.NewReader(`{"prompt":"`+strings.Repeat("A small dog ran. ", 20)+`","n_predict":4}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer two")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return rig.Reply{Status: resp.StatusCode, Header: resp.Header.Get(llamaserver.Header)}
	}
	if got := with(); got.Status != 200 || !strings.HasPrefix(got.Header, "miss") {
		t.Errorf("with a key: %+v", got)
	}
	r.Saved()
	r.KillServer()
	if got := with(); got.Status != 200 || !strings.HasPrefix(got.Header, "hit") {
		t.Errorf("with a key, after a kill: %+v", got)
	}
}

func selfSigned(t *testing.T, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	rig.WriteFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})))
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
}

// Who only looks whether an attached server is up does not end the preparation of its model; and when it was started again, the first request
// has what is stored.
func TestAttachedServerStartsAgain(t *testing.T) {
	slots := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	listener.Close()
	base := "http://" + at
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(at)
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	server := func() *exec.Cmd {
		cmd := exec.Command(rig.Program(t), "-t", "1", "-tb", "1", "-m", model, "-c", "2048", "-np", "2", "--port", port, "--slot-save-path", slots)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		cmd.Process.Kill()
		cmd.Wait()
	}
	r := &rig.Rig{T: t, Log: &rig.Log{}}
	logger := slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.Front, err = llamaserver.New(u, &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base, SlotDir: slots, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.Front)
	r.URL = web.URL
	defer func() {
		web.Close()
		if err := r.Front.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.Log)
		}
	}()
	r.Eventually(func() bool { return r.Front.Opened(0) == nil })
	r.Front.Prepare()
	s := r.Front.Known()
	up := func() bool {
		resp, err := http.Get(r.URL + "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	if up() {
		t.Fatal("something answers for a server that was not started")
	}
	cmd := server()
	defer func() { end(cmd) }()
	r.Eventually(up)
	r.Eventually(func() bool { return r.Front.Ready() == nil || s.Gone() })
	if s.Gone() {
		t.Error("a look at a server that is starting ended the preparation of its model")
	}
	r.Settled()
	if first := r.Ask("/completion", rig.Story("Attached", 8)); first.Status != 200 || !strings.HasPrefix(first.Header, "miss") {
		t.Fatalf("the first answer is %+v", first)
	}
	r.Saved()
	end(cmd)
	cmd = server()
	direct := &api.Client{Base: u, Client: http.DefaultClient}
	r.Eventually(func() bool { return direct.Health(context.Background()) == nil })
	if again := r.Ask("/completion", rig.Story("Attached", 8)); !strings.HasPrefix(again.Header, "hit") {
		t.Errorf("the first answer of a server that was started again is %+v", again)
	}
}

// Whoever names another folder than the server's is told so.
func TestAttachedWithAnotherFolder(t *testing.T) {
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	base := rig.Plain(t, "-m", model, "-c", "512", "-np", "1", "--slot-save-path", t.TempDir())
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	front, err := llamaserver.New(u, &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base, SlotDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close(context.Background())
	r := &rig.Rig{T: t, Front: front, Log: &rig.Log{}}
	r.Eventually(func() bool { return front.Opened(0) == nil })
	err = front.PrepareNow(context.Background())
	if err == nil || !errors.Is(err, request.PassSlots) || !strings.Contains(err.Error(), "--slot-save-path is another folder") {
		t.Errorf("the front says %v", err)
	}
}
