//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// transcript is a conversation as it is exported.
type transcript struct {
	Conversation string     `json:"conversation"`
	Title        string     `json:"title,omitempty"`
	Model        string     `json:"model"`
	System       string     `json:"system,omitempty"`
	Facts        []factText `json:"facts"`
	Turns        []turnText `json:"turns"`
}

type turnText struct {
	Turn    uint64    `json:"turn"`
	At      time.Time `json:"at"`
	User    string    `json:"user"`
	Answer  string    `json:"answer"`
	Evicted bool      `json:"evicted,omitempty"` // answers do not attend to it any more
}

// export writes the conversation to a new file.
func (t *talk) export(path string) error {
	x := transcript{
		Conversation: t.c.ID(), Title: string(t.c.Meta()), Model: t.name, Facts: append([]factText{}, t.facts()...), Turns: []turnText{},
		System: t.between(t.template.begin+t.template.system, t.c.System(), t.template.systemEnd),
	}
	for _, i := range t.c.Turns() {
		x.Turns = append(x.Turns, turnText{uint64(i.ID), i.At.UTC(), string(i.Meta), t.answerText(i.Answer), i.Evicted})
	}
	var b bytes.Buffer
	if strings.HasSuffix(path, ".json") {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(x); err != nil {
			return err
		}
	} else {
		x.text(&b)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s is there already: name a new file", path)
	case err != nil:
		return err
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		t.say("%s: %s, %s.", path, count(len(x.Turns), "turn"), count(len(x.Facts), "fact"))
	}
	return err
}

func (x *transcript) text(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s\n", strings.TrimSpace(x.Conversation+"  "+x.Title))
	if x.System != "" {
		fmt.Fprintf(b, "system: %s\n", x.System)
	}
	for _, f := range x.Facts {
		fmt.Fprintf(b, "fact %s: %s\n", f.Name, f.Text)
	}
	for _, t := range x.Turns {
		fmt.Fprintf(b, "\n> %s\n%s\n", t.User, t.Answer)
	}
}
