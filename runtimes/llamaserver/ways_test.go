package llamaserver

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

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// A server that somebody else runs is helped, too; and what others do to its slots meanwhile does no harm.
func TestAttached(t *testing.T) {
	slots := t.TempDir()
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	base := plain(t, "-m", model, "-c", "2048", "-np", "2", "--slot-save-path", slots)
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, log: &logged{}}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := filepath.Join(t.TempDir(), "store")
	if r.front, err = New(u, &Arguments{}, Options{Dir: dir, Attach: base, SlotDir: slots, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.front)
	r.url = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := r.front.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(slots); len(left) > 0 {
			t.Errorf("the slot folder has %d files left, %s", len(left), left[0].Name())
		}
		if t.Failed() {
			t.Log(r.log)
		}
	})
	r.front.Prepare()
	r.settled()
	first := r.ask("/completion", story("Attached", 8))
	if first.status != 200 || !strings.HasPrefix(first.header, "miss") {
		t.Fatalf("the first answer is %+v", first)
	}
	r.saved()
	for i := range 4 { // others use all slots
		if got := ask(t, context.Background(), base, "/completion", story(strings.Repeat("Others ", i+1), 6)); got.status != 200 {
			t.Fatalf("without the front: %+v", got)
		}
	}
	again := r.ask("/completion", story("Attached", 8))
	if !strings.HasPrefix(again.header, "hit") || again.text != first.text || again.a.Cached == 0 {
		t.Errorf("the answer is %q (%s), %d tokens reused; expected %q", again.text, again.header, again.a.Cached, first.text)
	}
}

// The server's own certificate and key are used for what the front asks it.
func TestServerWithTLSAndKey(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	selfSigned(t, cert, key)
	r := start(t, Options{}, "-c", "2048", "--ssl-cert-file", cert, "--ssl-key-file", key, "--api-key", "one,two")
	if got := r.ask("/completion", story("Nobody", 4)); got.status != http.StatusUnauthorized {
		t.Errorf("without a key: %+v", got)
	}
	with := func() reply {
		req, err := http.NewRequest(http.MethodPost, r.url+"/completion", strings.NewReader(`{"prompt":"`+strings.Repeat("A small dog ran. ", 20)+`","n_predict":4}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer two")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return reply{status: resp.StatusCode, header: resp.Header.Get(Header)}
	}
	if got := with(); got.status != 200 || !strings.HasPrefix(got.header, "miss") {
		t.Errorf("with a key: %+v", got)
	}
	r.saved()
	r.killServer()
	if got := with(); got.status != 200 || !strings.HasPrefix(got.header, "hit") {
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
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})))
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
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	server := func() *exec.Cmd {
		cmd := exec.Command(program(t), "-t", "1", "-tb", "1", "-m", model, "-c", "2048", "-np", "2", "--port", port, "--slot-save-path", slots)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		cmd.Process.Kill()
		cmd.Wait()
	}
	r := &rig{t: t, log: &logged{}}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.front, err = New(u, &Arguments{}, Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base, SlotDir: slots, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.front)
	r.url = web.URL
	defer func() {
		web.Close()
		if err := r.front.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log)
		}
	}()
	r.eventually(func() bool { _, err := r.front.shelf.store(); return err == nil })
	r.front.Prepare()
	s := r.front.servedFor("")
	up := func() bool {
		resp, err := http.Get(r.url + "/health")
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
	r.eventually(up)
	r.eventually(func() bool { m, _ := s.ready(); return m != nil || s.gone() })
	if s.gone() {
		t.Error("a look at a server that is starting ended the preparation of its model")
	}
	r.settled()
	if first := r.ask("/completion", story("Attached", 8)); first.status != 200 || !strings.HasPrefix(first.header, "miss") {
		t.Fatalf("the first answer is %+v", first)
	}
	r.saved()
	end(cmd)
	cmd = server()
	direct := &api.Client{Base: u, Client: http.DefaultClient}
	r.eventually(func() bool { return direct.Health(context.Background()) == nil })
	if again := r.ask("/completion", story("Attached", 8)); !strings.HasPrefix(again.header, "hit") {
		t.Errorf("the first answer of a server that was started again is %+v", again)
	}
}

// Whoever names another folder than the server's is told so.
func TestAttachedWithAnotherFolder(t *testing.T) {
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	base := plain(t, "-m", model, "-c", "512", "-np", "1", "--slot-save-path", t.TempDir())
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	front, err := New(u, &Arguments{}, Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base, SlotDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close(context.Background())
	r := &rig{t: t, front: front, log: &logged{}}
	r.eventually(func() bool { _, err := front.shelf.store(); return err == nil })
	err = front.servedFor("").prepare(context.Background())
	if err == nil || !errors.Is(err, request.PassSlots) || !strings.Contains(err.Error(), "--slot-save-path is another folder") {
		t.Errorf("the front says %v", err)
	}
}
