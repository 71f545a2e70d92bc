"""The four papers, figure by figure."""
