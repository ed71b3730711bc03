package llamaserver

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// listener names the socket at which a server of this machine listens: another process has another one. "" if it cannot be told.
func listener(u *url.URL) string {
	var port int
	if _, err := fmt.Sscan(u.Port(), &port); err != nil {
		return ""
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := listenerIn(table, fmt.Sprintf(":%04X", port)); inode != "" {
			return inode
		}
	}
	return ""
}

// listenerIn finds the line of a port that is listened at: its number, local address, remote address, state (0A), … and, tenth, its inode.
func listenerIn(table, port string) string {
	f, err := os.Open(table)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) > 9 && w[3] == "0A" && strings.HasSuffix(w[1], port) {
			return w[9]
		}
	}
	return ""
}
