package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// redisServer writes every change to its append-only file before it answers, so
// that what Conductor was told is there after a crash of either.
func redisServer(dir, logPath string) *Server {
	return NewServer(ServerConfig{
		Name:         "Redis",
		LogPath:      logPath,
		StartTimeout: time.Minute,
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command("redis-server",
				"--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--daemonize", "no",
				"--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
			)
			cmd.Dir = dir
			cmd.Env = baseEnv(dir)
			return cmd
		},
		Ready: func(_ context.Context, _ int, log []byte) error {
			if !strings.Contains(string(log), "Ready to accept connections") {
				return errors.New("it does not accept connections yet")
			}
			return nil
		},
	})
}

// onRedis are the settings of a Conductor that keeps what it has there.
func onRedis(redis *Server) []string {
	_, port, _ := strings.Cut(strings.TrimPrefix(redis.URL(), "http://"), ":")
	return []string{
		"--conductor.redis.hosts=127.0.0.1:" + port + ":us-east-1c",
	}
}
