package llamaserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// ScopeOfKey is the scope of requests with an API key.
func ScopeOfKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key:" + hex.EncodeToString(sum[:16])
}

// keyOf is the API key of a request.
func keyOf(r *http.Request) string {
	key := r.Header.Get("Authorization") // as the server reads it
	if key == "" {
		key = r.Header.Get("X-Api-Key")
	}
	return strings.TrimPrefix(key, "Bearer ")
}

// admission knows which API keys the server takes.
type admission struct {
	api *api.Client

	mu       sync.Mutex
	admitted map[[sha256.Size]byte]bool // hashes of keys
}

// admits gives an error unless the server takes an API key. Until it does, nothing is done for a request, and nothing said of what is stored.
func (a *admission) admits(ctx context.Context, key string) error {
	if a.api.Key == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(key))
	a.mu.Lock()
	known := a.admitted[sum]
	a.mu.Unlock()
	if known {
		return nil
	}
	with := *a.api
	with.Key = key
	if _, err := with.Tokenize(ctx, "", false); err != nil {
		if api.Loading(err) {
			return err
		}
		return request.PassKey // the server says that it does not take it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.admitted == nil {
		a.admitted = map[[sha256.Size]byte]bool{}
	}
	a.admitted[sum] = true
	return nil
}
