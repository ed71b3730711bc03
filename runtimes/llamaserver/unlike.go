package llamaserver

import (
	"log/slog"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// unlike knows the kinds of requests whose prompts the server renders in another way than the front.
type unlike struct {
	cases trial.Cases[string]
	log   *slog.Logger
}

// differs counts a prompt of which the server has made other tokens than the front. Once is nothing: a template that says the time does that.
func (u *unlike) differs(kind string, err error) {
	rests := u.cases.Failed(kind)
	u.log.Warn("the server has made other tokens of a prompt than the front", "kind", kind, "err", err)
	if rests {
		u.log.Warn("the server makes other tokens of such prompts than the front: they pass for a while", "kind", kind)
	}
}
