package llamaserver

import (
	"context"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// bounded has a server render and tokenize one prompt, and stops once the prompt is longer than a slot has room for. Making tokens takes seconds for some
// megabytes, and the server, which refuses such a prompt, does it itself once more.
type bounded struct {
	*api
	room   int // tokens
	tokens int // so far
	texts  int // so far
}

const (
	// Of a text that has more bytes for each token of room, the beginning is tried first. Few texts have more than 5 a token.
	bytesPerToken = 8
	// The end of a text that was cut may have more tokens than as part of the whole.
	cutSlack = 256
	// A prompt may be a list of texts, each of which is sent to the server.
	maxTexts = 1000
)

// Tokenize gives PassLong where the prompt is too long.
func (b *bounded) Tokenize(ctx context.Context, text string, addSpecial bool) ([]int32, error) {
	if b.texts++; b.texts > maxTexts {
		return nil, request.PassBody
	}
	for size := bytesPerToken*b.room + cutSlack*bytesPerToken; size < len(text); size *= 4 {
		end := size
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		begin, err := b.api.Tokenize(ctx, text[:end], addSpecial)
		if err != nil {
			return nil, err
		}
		if b.tokens+len(begin)-cutSlack >= b.room {
			return nil, request.PassLong
		}
	}
	out, err := b.api.Tokenize(ctx, text, addSpecial)
	if b.tokens += len(out); err == nil && b.tokens >= b.room {
		err = request.PassLong
	}
	return out, err
}
