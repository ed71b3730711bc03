package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
)

// ReportMark is how a report begins, and nothing else does.
const ReportMark = "<!doctype html><!-- Dormouse report, format 1 -->\n"

// WriteReport writes one file that shows an open store as it is now: it needs no network, no other file, and no server. It returns what was
// drawn.
func WriteReport(ctx context.Context, w io.Writer, s *db.Store, title string) (Tree, error) {
	t, err := Draw(ctx, s)
	if err != nil {
		return t, err
	}
	st, err := s.Stats()
	if err != nil {
		return t, err
	}
	v := newFigures(title)
	v.Report, v.At = true, time.Now().UnixMilli()
	v.addStore(st, s.Options().ReadOnly)
	b, err := report(v, viewOf(t, nil))
	if err != nil {
		return t, err
	}
	_, err = w.Write(b)
	return t, err
}

// report puts everything into the page that a server would serve beside it.
func report(v figuresView, t treeView) ([]byte, error) {
	read := func(name string) string {
		b, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	var code strings.Builder
	for _, name := range scripts {
		code.WriteString(read(name))
	}
	style := read("page.css")
	icon := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(read("icon.svg")))
	rules := "default-src 'none'; script-src " + hashOf(code.String()) + "; style-src " + hashOf(style) + "; img-src data:; base-uri 'none'; " +
		"form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	html := read("index.html")
	begin, end := strings.Index(html, "<!-- files -->"), strings.Index(html, "<!-- end of files -->")
	if begin < 0 || end < begin || !strings.HasPrefix(html, "<!doctype html>\n") {
		return nil, fmt.Errorf("page: index.html does not say where its files are")
	}
	var out bytes.Buffer
	out.WriteString(ReportMark)
	out.WriteString(html[len("<!doctype html>\n"):begin])
	// The policy comes before what it is about.
	fmt.Fprintf(&out, "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n", rules)
	fmt.Fprintf(&out, "<link rel=\"icon\" href=\"%s\">\n<style>%s</style>\n", icon, style)
	// In the JSON there is no < that could end the element.
	fmt.Fprintf(&out, "<script type=\"application/json\" id=\"data\">{\"figures\":%s,\"tree\":%s}</script>\n", encode(v), encode(t))
	rest := html[end+len("<!-- end of files -->"):]
	rest = strings.ReplaceAll(rest, `src="icon.svg"`, `src="`+icon+`"`)
	body, tail, found := strings.Cut(rest, "</body>")
	if !found {
		return nil, fmt.Errorf("page: index.html has no end")
	}
	out.WriteString(body)
	fmt.Fprintf(&out, "<script>%s</script>\n</body>", code.String())
	out.WriteString(tail)
	return out.Bytes(), nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
