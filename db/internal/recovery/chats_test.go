package recovery_test

import (
	"context"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// crashChat is one conversation.
type crashChat struct {
	*crashtest.Chat
	p kv.Prompt
	d kv.Descriptor
}

// crashSystem is how many tokens all conversations begin with: two whole blocks and a half.
const (
	crashSystem = 40
	crashBlock  = 16
)

// crashChats are the conversations: of three models, in three scopes.
var crashChats = sync.OnceValue(func() []*crashChat {
	models := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40), crashtest.Opaque()}
	var chats []*crashChat
	for c := range 6 {
		d, _ := models[[]int{0, 1, 0, 1, 0, 2}[c]].Normal()
		p := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, crashSystem), []kv.Token{kv.Token(5000 + c)}, crashtest.Tokens(100+c, 50+c*11))}
		if scope := []string{"", "alice", "bob"}[c%3]; scope != "" {
			p.Scope, p.ScopeStart = scope, crashSystem
		}
		x := crashtest.NewChat(d, p, crashSystem)
		chats = append(chats, &crashChat{x, x.Prompt, x.Model})
	}
	return chats
})

// restore restores the longest stored prefix and compares every row.
func (x *crashChat) restore(m *db.Model) (int, error) { return restoreChat(x.Chat, m) }

func restoreChat(x *crashtest.Chat, m *db.Model) (int, error) {
	match, err := m.Match(context.Background(), x.Prompt, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer match.Close()
	return checkChat(x, match)
}

var errWrongRow = crashtest.ErrWrongRow

func (x *crashChat) check(match *db.Match) (int, error) { return checkChat(x.Chat, match) }

func checkChat(x *crashtest.Chat, match *db.Match) (int, error) {
	rows := x.Room()
	got, err := match.Restore(context.Background(), rows)
	if err != nil {
		return 0, err
	}
	if err := x.Check(rows, got.Tokens); err != nil {
		return 0, err
	}
	return got.Tokens, nil
}
