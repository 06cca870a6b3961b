module billet/pause

go 1.24.0
