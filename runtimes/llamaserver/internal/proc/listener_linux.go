package proc

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Listener returns a name of the socket at which a server of this machine listens. Another process has another socket. The name is empty if the
// system does not tell.
func Listener(u *url.URL) string {
	if words := listenerWords(u); words != nil {
		return words[9]
	}
	return ""
}

// UserOf returns the number of the user whose process listens at an address of this machine.
func UserOf(u *url.URL) (uid int, ok bool) {
	words := listenerWords(u)
	if words == nil {
		return 0, false
	}
	uid, err := strconv.Atoi(words[7])
	return uid, err == nil
}

// listenerWords are the words of the line of /proc/net/tcp for an address at which somebody listens. The fourth word is the state: 0A means
// listening. The eighth is the user, the tenth the socket's inode.
func listenerWords(u *url.URL) []string {
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return nil
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table)
		for line := range strings.Lines(string(b)) {
			if w := strings.Fields(line); len(w) > 9 && w[3] == "0A" && strings.HasSuffix(w[1], fmt.Sprintf(":%04X", port)) {
				return w
			}
		}
	}
	return nil
}
