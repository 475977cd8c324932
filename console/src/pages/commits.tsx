export const Commits = () => <h1>Commits</h1>
