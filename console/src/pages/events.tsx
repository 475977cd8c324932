export const Events = () => <h1>Events</h1>
