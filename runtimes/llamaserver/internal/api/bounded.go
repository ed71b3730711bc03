package api

import (
	"context"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// Bounded has the server render and tokenize one prompt, and stops once the prompt is longer than a slot has room for. Tokens of some megabytes take
// seconds to make. The server rejects such a prompt, but makes its tokens once more.
type Bounded struct {
	*Client
	Room   int // tokens
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

// Tokenize makes tokens of text as [Client.Tokenize] does. If the prompt becomes too long, it fails with request.PassLong.
func (b *Bounded) Tokenize(ctx context.Context, text string, addSpecial bool) ([]int32, error) {
	if b.texts++; b.texts > maxTexts {
		return nil, request.PassBody
	}
	for size := bytesPerToken*b.Room + cutSlack*bytesPerToken; size < len(text); size *= 4 {
		end := size
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		begin, err := b.Client.Tokenize(ctx, text[:end], addSpecial)
		if err != nil {
			return nil, err
		}
		if b.tokens+len(begin)-cutSlack >= b.Room {
			return nil, request.PassLong
		}
	}
	out, err := b.Client.Tokenize(ctx, text, addSpecial)
	if b.tokens += len(out); err == nil && b.tokens >= b.Room {
		err = request.PassLong
	}
	return out, err
}
