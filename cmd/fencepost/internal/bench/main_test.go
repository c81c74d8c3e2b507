package bench

import (
	"os"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
