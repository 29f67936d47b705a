package main

import (
	"os"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/shoot/cache"
	"github.com/routefence/routefence/shoot/cluster"
	"go.uber.org/zap"
)

// apiSource is what --shoot, --kubeconfig and --cache-dir mean.
type apiSource struct {
	ref    cluster.Ref
	access cluster.Access
	cache  cluster.Cache
}

// apiSource returns nil if no object is to be watched.
func (f *fenceFlags) apiSource() (*apiSource, error) {
	if f.shoot == "" {
		if f.kubeconfig != "" {
			return nil, command.Usage("--kubeconfig=%s: is for --shoot, which is not given", f.kubeconfig)
		}
		return nil, nil
	}
	ref, err := cluster.ParseRef(f.shoot)
	if err != nil {
		return nil, command.Usage("--shoot=%s: %v", f.shoot, err)
	}
	return &apiSource{ref: ref, access: cluster.Access{Kubeconfig: f.kubeconfig}, cache: cache.Dir("")}, nil
}

// keepIn checks --cache-dir. A kubeconfig that is missing may still come; a directory that is missing is a volume not mounted.
func (f *agentFlags) keepIn(s *apiSource) error {
	if f.cacheDir == "" {
		return nil
	}
	if s == nil {
		return command.Usage("--cache-dir=%s: is for --shoot, which is not given", f.cacheDir)
	}
	if info, err := os.Stat(f.cacheDir); err != nil || !info.IsDir() {
		return command.Usage("--cache-dir=%s: is no directory; mount a volume there, such as an emptyDir", f.cacheDir)
	}
	s.cache = cache.Dir(f.cacheDir)
	return nil
}

// sources returns the object itself, and beside a Cluster its Infrastructure.
func (s *apiSource) sources(log *zap.Logger) []agent.Source {
	source := cluster.New(cluster.Options{
		Ref: s.ref, Cache: s.cache, Log: log,
		Connect: func() (cluster.API, error) { return s.access.Connect() },
	})
	if beside := source.Beside(); beside != nil {
		return []agent.Source{source, beside}
	}
	return []agent.Source{source}
}
